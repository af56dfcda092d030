-- Whether somebody has had a signal of this name. [signal.answer] signals_key.
SELECT CAST(CASE WHEN EXISTS (SELECT 1 FROM {schema}.signals WHERE [key] = @P1 AND state = 1)
                 THEN 1 ELSE 0 END AS bit)
