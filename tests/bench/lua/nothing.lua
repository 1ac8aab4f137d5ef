-- Does nothing: what a script costs before it does anything.
-- RETURNS 1
return 1
