package api

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
)

// Check judges the body of one POST /v1/callbacks without a server: what it finds, a server would refuse. Its error is one that
// package httperr knows. Whether the address may be sent to is left to a server.
func Check(body []byte, now time.Time) error {
	if err := checkJSON(body); err != nil {
		return err
	}
	sub, err := decodeSubmission(body)
	if err != nil {
		return err
	}
	return accept.Check(&sub, now)
}
