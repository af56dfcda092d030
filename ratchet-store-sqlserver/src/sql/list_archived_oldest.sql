-- The archived jobs that ended in some states (@P1: a bit for each), of a queue (@P3) if @P2 and of a
-- kind (@P5) if @P4, behind one (@P6), oldest first. [archive.list] Primary key of archive.
SELECT TOP (@P7) id, archived_at, document FROM {schema}.archive
WHERE id > CONVERT(binary(16), @P6) AND @P1 & POWER(2, state) <> 0
  AND (@P2 = 0 OR queue = @P3) AND (@P4 = 0 OR kind = @P5)
ORDER BY id
