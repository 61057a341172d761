"""What stands in front of records: who printed them, where, and when."""
