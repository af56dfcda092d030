-- How writers and readers keep out of each other's way. [diag.read] Reads a setting.
PRAGMA journal_mode
