package relay

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// TestGaugesAreOfTheHolder: a process that lost the source exports no counts that another one changes.
func TestGaugesAreOfTheHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		lost := false
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if lost && b.Holder == "a" {
				return errors.New("no route to the server")
			}
			return nil
		}
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if row.ID == "bad" {
				return result(http.StatusUnprocessableEntity, "invalid")
			}
			return result(http.StatusInternalServerError, "internal")
		}
		a := w.start("a")
		w.pass(time.Second)
		b := w.start("b")
		w.insert("bad", "stays")
		w.pass(10 * time.Second)
		w.metric(a, `refused_rows{source="pay"}`, 1)
		w.metric(a, `rows_waiting{source="pay"}`, 1)
		lost = true
		w.pass(30 * time.Second)
		w.metric(a, `leader{source="pay"}`, 0)
		w.metric(a, `refused_rows{source="pay"}`, 0)
		w.metric(a, `rows_waiting{source="pay"}`, 0)
		w.metric(b, `leader{source="pay"}`, 1)
		w.metric(b, `refused_rows{source="pay"}`, 1)
	})
}
