"""What the processes of such groups run."""
