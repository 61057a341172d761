"""What failed, how processes ended, and how far training had come."""
