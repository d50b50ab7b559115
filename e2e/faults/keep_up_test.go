package faults

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Retention removes callbacks as fast as a saturated dispatcher delivers them, payloads first and rows later:
// what should be gone does not gather.
func TestRetentionKeepsUpWithSaturation(t *testing.T) {
	harness.BlackBox(t) // alone: it measures
	// Retention works in runs seconds apart, so rows of some seconds may wait at the end that did not at the
	// beginning: in two minutes they are below the twentieth that is allowed.
	span := sized(2*time.Minute, 2*time.Minute, 5*time.Minute)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, on harness.Backend) {
		on.KeepApart("retention removes callbacks")
		p := harness.Serve(t, harness.Launch{On: on, Args: []string{
			"--retention-payload", "1s", "--retention-metadata", "5s",
		}})
		s := saturate(t, p)
		harness.Eventually(t, time.Minute, "retention begins", func() error {
			n, err := s.count("dispatcher_purged_total", `what="callback"`)
			if err == nil && n == 0 {
				err = errors.New("nothing was removed")
			}
			return err
		})
		s.during(t, 10*time.Second) // what had gathered before the first run goes
		k := &kept{db: on.Database(t)}
		before := k.overdue(t, 5*time.Second)
		got := s.during(t, span)
		overdue := k.overdue(t, 5*time.Second)
		t.Logf("%.0f/s delivered, %.0f/s removed: %.2f; the oldest callback is overdue by %s, "+
			"after %s before",
			got.delivered, got.removed, got.removed/got.delivered, overdue, before)
		if got.removed < 0.95*got.delivered {
			t.Errorf("removed %.0f/s of %.0f/s that were delivered", got.removed, got.delivered)
		}
		if more := overdue - before; more > span/5 {
			t.Errorf("what should be gone is older by %s than %s before", more, span)
		}
	})
}

// kept is a database that retention works on.
type kept struct{ db *sql.DB }

// overdue is for how long the oldest terminal callback has outstayed its retention.
func (k *kept) overdue(t *testing.T, retention time.Duration) time.Duration {
	t.Helper()
	var oldest sql.NullInt64
	if err := k.db.QueryRowContext(t.Context(),
		`SELECT MIN(finished_at) FROM callbacks WHERE finished_at > 0`).Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	if !oldest.Valid {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(oldest.Int64))-retention).Round(100 * time.Millisecond)
}
