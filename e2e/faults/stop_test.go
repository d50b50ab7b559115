package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A stop is in force within a second, whichever process it is asked of and whichever sends; what was open
// goes on when it ends.
func TestAStopTakesEffectWithinASecond(t *testing.T) {
	runOn(t, "stops", heavy, harness.BothEnds, unlimited(func(tr *trial) {
		r := tr.Receiver
		p := tr.ServeAll()
		other := tr.Alive()[len(tr.Alive())-1]
		id := p.Make("/v1/endpoints", harness.Submission{"url": r.URL})
		const n = 30_000
		tr.AcceptMany(n, func(i int) harness.Submission {
			ref := fmt.Sprint("stop-", i)
			return harness.Submission{"endpoint": id, "ref": ref, "payload": harness.Payload(ref)}
		})
		for _, of := range []string{"/v1/endpoints/" + id, "/v1/lanes/" + id, "/v1"} {
			tr.AtLeast(30*time.Second, "it is being sent", r.Count()+200, r.Count)
			other.Post(of+"/pause", harness.Submission{"reason": "a test"}, nil)
			time.Sleep(time.Second) // the time that it may take
			stopped := r.Count()
			time.Sleep(2 * time.Second)
			if after := r.Count(); after != stopped {
				tr.Errorf("%s/pause: %d arrived more than a second later", of, after-stopped)
			}
			if stopped >= n {
				tr.Fatalf("%s/pause: all had arrived before it", of)
			}
			p.Post(of+"/resume", nil, nil)
		}
		tr.Settle(2 * time.Minute)
		tr.Verdict(judge.Bounds{})
	}))
}
