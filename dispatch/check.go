package dispatch

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Check judges a submission as Accept would at now, as far as that can be done without a server, and accepts nothing: not whether its
// address may be sent to, nor whether there is an endpoint, a policy, a rule or a profile of a name that no preset has. Its error is a
// *store.InvalidError.
func Check(s *Submission, now time.Time) error {
	_, err := new(Engine).draft(blindView(), store.DefaultProject, s, now)
	return err
}
