"""What makes a release; part of no wheel."""
