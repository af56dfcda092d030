-- The jobs that wait for a signal of this name. [signal.deliver] signals_key.
SELECT job FROM {schema}.signals WHERE [key] = @P1 AND state = 0
