"""What puts a system together and runs it, behind a verb of `mirage/cli`: plans in, results out."""
