package main

import "time"

// acceptInBatches is acceptSingly with a hundred callbacks a request.
func acceptInBatches(s *session) {
	s.accepting("batch", func(due time.Time) time.Duration { return s.acceptBatches(s.n, dueAll(due)) })
}
