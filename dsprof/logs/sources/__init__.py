"""Where logs are, and how what is packed around their lines is removed."""
