-- Notes that jobs have ended without their signals. [signal.late] Primary key of signals.
UPDATE {schema}.signals SET state = 2 WHERE job = ANY($1::uuid[]) AND state = 0
