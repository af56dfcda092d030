-- One lock. [lock.inspect] Primary key of locks.
SELECT owner, fence, expires_at, {now} FROM {schema}.locks WHERE name = @P1
