-- Whether somebody has had a signal of this name. [signal.answer] signals_key.
SELECT EXISTS (SELECT FROM {schema}.signals WHERE key = $1 AND state = 1)
