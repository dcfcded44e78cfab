"""One pass over the scores of two versions, in bounded memory."""
