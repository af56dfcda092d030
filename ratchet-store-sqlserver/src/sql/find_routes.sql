-- The routes of a queue (@P1; empty: any) and a kind (@P2; empty: any). [page.filter] [count.filter]
-- Reads the routes, which are few, once.
SELECT id FROM {schema}.routes
WHERE (@P1 = N'' OR queue = @P1) AND (@P2 = N'' OR kind = @P2)
