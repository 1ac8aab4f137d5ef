"""What advisor agents write for customers, and how it is reviewed before it is sent."""
