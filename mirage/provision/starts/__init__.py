"""When a job would start: forecasts of the wait of any job, and their evaluation."""
