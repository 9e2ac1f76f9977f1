"""What every report stands on: intervals, where figures come from, drawings, and the page."""
