"""`report.html`: one page for people, that needs nothing but itself."""
