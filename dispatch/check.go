package dispatch

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Check judges a submission as Accept would at now in a project that has set nothing, and accepts nothing. Whether its address may be
// sent to depends on a server's settings and is not judged. Its error is a *store.InvalidError.
func Check(s *Submission, now time.Time) error {
	_, err := new(Engine).draft(plainView(), store.DefaultProject, s, now)
	return err
}
