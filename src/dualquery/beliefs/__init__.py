"""What learning data players believe."""
