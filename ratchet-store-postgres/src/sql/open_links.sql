-- Which of these jobs have open links. [link.requeue] [signal.deliver] Primary key of links.
SELECT DISTINCT child FROM {schema}.links WHERE child = ANY($1::uuid[]) AND state = 0
