"""Jobs of Coder, and schedules of its workspaces, that no provisioner serves."""
