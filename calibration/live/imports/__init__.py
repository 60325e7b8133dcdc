"""Results of other load generators, brought into the folder that ``observe`` writes."""
