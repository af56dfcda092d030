-- The database's clock in milliseconds. [time.clock] [time.precision] [time.read]
SELECT {now}
