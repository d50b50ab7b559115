package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// pollSteps are the failpoints between the accept of a poll and its end, in order.
var pollSteps = []string{
	"before_accept_commit", "after_accept_commit", "after_enqueue",
	"after_claim", "after_lock", "after_stamp", "before_send", "after_send", "before_result_commit",
	"after_result_commit", "after_settle",
}

// A pollKill is a poll of an order whose dispatcher is killed at a step of one of its five requests; request
// 6 is that of its result.
type pollKill struct {
	failpoint string
	request   int
}

func (k pollKill) accepting() bool {
	return strings.HasSuffix(k.failpoint, "_accept_commit") || k.failpoint == "after_enqueue"
}

func (k pollKill) ref() string { return fmt.Sprintf("%s-%d", k.failpoint, k.request) }

// pollKills are each step of each request, or in the small size of the last one and of the result.
func pollKills() (kills []pollKill) {
	requests := sized([]int{5, 6}, []int{1, 2, 3, 4, 5, 6}, []int{1, 2, 3, 4, 5, 6})
	for _, failpoint := range pollSteps {
		if accepting := (pollKill{failpoint: failpoint}).accepting(); accepting {
			kills = append(kills, pollKill{failpoint, 1}) // it is accepted once; its result is accepted with its end
			continue
		}
		for _, request := range requests {
			kills = append(kills, pollKill{failpoint, request})
		}
	}
	return kills
}

// A dispatcher that asks about an order is killed at each step between accepting it and telling the merchant,
// and another one goes on: the merchant is told once, of what the upstream has said, and not before it has
// said it.
func TestAPollKilledAtEveryStep(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	for _, c := range harness.BothEnds {
		t.Run(c.String(), func(t *testing.T) {
			began := time.Now()
			shared := harness.NewBackend(t, c) // its Redis is that of all, each with a prefix of its own
			kills := pollKills()
			victims := make([]*pollVictim, len(kills))
			for i, k := range kills {
				v := &pollVictim{pollKill: k, up: newUpstream()}
				v.trial = newTrial(t, "poll killed at "+k.ref())
				v.Times = harness.QuickTimes
				v.Recorder.SetScript(v.up.answer)
				b := harness.Backend{Name: c.String(), DataDir: t.TempDir(), Redis: shared.Redis, Server: shared.Server,
					Prefix: fmt.Sprint("e2e", i)}
				if c.Postgres {
					b.Postgres = testserver.SharedPostgres(t).Database(t)
				}
				v.UseBackend(b)
				victims[i] = v
			}
			// What the dead had claimed is claimed again when that has run out. All of them die first, so
			// that this is waited for once.
			t.Run("killed", func(t *testing.T) {
				for _, v := range victims {
					t.Run(v.ref(), func(t *testing.T) {
						mostlyWaits(t)
						v.as(t).die()
					})
				}
			})
			t.Run("started again", func(t *testing.T) {
				for _, v := range victims {
					t.Run(v.ref(), func(t *testing.T) {
						mostlyWaits(t)
						v.as(t).goOn()
					})
				}
			})
			hits, asked := 0, 0
			for _, v := range victims {
				hits, asked = hits+len(v.hit), asked+v.Recorder.Count()
			}
			t.Logf("%s: %d polls killed at %d steps, %d of them found claimed by the kill; %d requests in all, %d "+
				"more than without a fault; %s",
				c, len(victims), len(pollSteps), hits, asked, asked-6*len(victims),
				time.Since(began).Round(10*time.Millisecond))
		})
	}
}

// A pollVictim is a trial with the one poll that a kill is about.
type pollVictim struct {
	*trial
	pollKill
	up *upstream
	id string
	// hit is what the kill found in flight, and how often.
	hit    map[string]int
	claims *harness.UncommittedClaims
}

// as has the trial go on under another test. What it had open beside the program is closed with the test
// before.
func (v *pollVictim) as(t *testing.T) *pollVictim {
	v.trial = &trial{&harness.Trial{T: t, Title: v.Title, Backend: v.Backend, Recorder: v.Recorder, Args: v.Args,
		Times: v.Times, Accepted: v.Accepted}}
	return v
}

// ask hands the poll over, for the first time or again, and returns its id.
func (v *pollVictim) ask(p *harness.Process) (string, error) {
	s := v.order(v.ref(), fiveTiers...)
	s["idempotency_key"], s["lock_key"] = "key-"+v.ref(), "lock-"+v.ref()
	body, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	got, err := p.Raw(v.Context(), http.MethodPost, "/v1/polls", body, nil)
	if err != nil {
		return "", err
	}
	var cb harness.Callback
	if got.Status != http.StatusAccepted && got.Status != http.StatusOK {
		return "", fmt.Errorf("answered %d: %s", got.Status, got.Body)
	}
	err = got.Decode(&cb)
	return cb.ID, err
}

// die has the poll accepted by a process that kills itself, and looks at what that leaves.
func (v *pollVictim) die() {
	failpoint := fmt.Sprintf("%s:%d", v.failpoint, v.request)
	v.Backend.KeepApart("another test goes on with it")
	p := v.ServeUntil(failpoint)
	id, err := v.ask(p)
	if err == nil {
		v.id = id
		v.NoteAccepted(id, v.ref())
	} else {
		v.Logf("it was handed over and not answered: %v", err) // its first request may be as quick as the answer
	}
	awaitDeath(v.T, p, failpoint, time.Minute)
	v.claims = v.trial.UncommittedClaims()
	v.claims.Take(time.Now(), 0)
	v.hit = v.claims.Bounds(0).Hit

	// Its end and its result are one commit.
	var state string
	var polls, ended, results int
	err = v.Database().QueryRowContext(v.Context(), `SELECT count(*), coalesce(max(state), ''),
		count(CASE WHEN state <> 'scheduled' THEN 1 END)
		FROM callbacks JOIN requests USING (project, id)
		WHERE ref = $1 AND kind = 'poll'`, v.ref()).Scan(&polls, &state, &ended)
	if err == nil {
		err = v.Database().QueryRowContext(v.Context(),
			`SELECT count(*) FROM callbacks JOIN requests USING (project, id)
				WHERE ref = $1 AND kind <> 'poll'`, v.ref()).Scan(&results)
	}
	if err != nil {
		v.Fatal(err)
	}
	said := !v.up.saidSuccess(v.ref()).IsZero()
	if polls > 1 || results != ended || results > 0 && !said ||
		said != (v.request == 6 || v.request == 5 && v.asked()) {
		v.Errorf("killed at %s: %d polls, %s, with %d results; the upstream has said SUCCESS: %t", failpoint, polls,
			state, results, said)
	}
	if v.accepting() && polls != 1 && v.failpoint != "before_accept_commit" ||
		v.failpoint == "before_accept_commit" && polls != 0 {
		v.Errorf("killed at %s, and SQL has %d polls", failpoint, polls)
	}
}

// asked says whether the request that the kill is about was made.
func (k pollKill) asked() bool {
	switch k.failpoint {
	case "after_send", "before_result_commit", "after_result_commit", "after_settle":
		return true
	}
	return false
}

// goOn starts another process, hands over what was not answered, and judges how it all ended.
func (v *pollVictim) goOn() {
	if v.claims == nil {
		v.Fatal("it did not come to the kill")
	}
	v.claims.Continue(v.Trial)
	v.Backend.KeepApart("")
	p := v.Serve()
	if v.id == "" {
		id, err := v.ask(p)
		if err != nil {
			v.Fatal(err)
		}
		v.id = id
		v.NoteAccepted(id, v.ref())
	}
	v.Settle(2 * time.Minute)
	v.claims.Account()
	bounds := v.claims.Bounds(0)
	bounds.SharedRefs = true // the result has the poll's
	v.Verdict(bounds)
	v.judgePoll(p.Client, v.up, v.ref(), v.id, v.hit)
	all, err := p.List(v.Context(), nil)
	if err != nil {
		v.Fatal(err)
	}
	if len(all) != 2 {
		v.Errorf("%d callbacks, want the poll and its result: %+v", len(all), all)
	}
}
