-- The database's clock in milliseconds. [time.clock] [time.precision]
-- unixepoch('subsec') is a float of seconds: rounded, so that no float error costs a millisecond.
SELECT CAST(round(unixepoch('subsec') * 1000.0) AS INTEGER)
