"""Replays that operators start on the page: processes of the web server, their supervisor, and their progress."""
