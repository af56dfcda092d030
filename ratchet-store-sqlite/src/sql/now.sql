-- The database's clock in milliseconds. [time.clock] [time.precision]
-- unixepoch('subsec') is a float of seconds: rounding, not truncation, gives its millisecond back.
SELECT CAST(round(unixepoch('subsec') * 1000.0) AS INTEGER)
