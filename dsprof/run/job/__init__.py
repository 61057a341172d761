"""What a job is: settings, hosts, versions, and the launch that reports are about."""
