package harness

import (
	"fmt"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// Books that are not what callers know are found out: a caller is told of one more than there is.
func TestBooksThatDoNotBalanceAreFoundOut(t *testing.T) {
	BlackBox(t)
	OnEach(t, []Combination{SQLiteEmbedded}, func(t *testing.T, b Backend) {
		r := NewReceiver(t, Always(200, ""))
		p := Serve(t, Launch{On: b})
		for i := range 20 {
			ref := fmt.Sprint("books-", i)
			if _, err := p.Accept(t.Context(), Submission{"url": r.URL, "ref": ref,
				"payload": Payload(ref)}); err != nil {
				t.Fatal(err)
			}
		}
		// A poll's result is in the books, and no answer named it: it does not stand for one that is missing.
		if _, err := p.Accept(t.Context(), Submission{
			"ref": "books-poll", "request": Submission{"url": r.URL}, "policy": AskAfter("1h"),
			"until":     Submission{"success": []Submission{{"status": []int{200}}}},
			"on_result": Submission{"url": r.URL},
		}); err != nil {
			t.Fatal(err)
		}
		Await(t, p.Client, time.Minute)
		Eventually(t, booksPatience, "the books balance",
			func() error { return p.compareBooks(t.Context(), p.accounts) })
		wrong := &accounts{accepted: 22}
		if err := p.compareBooks(t.Context(), wrong); err == nil {
			t.Error("one that is missing is not missed")
		}
		// One that SQL has lost is missed by the counters.
		db := b.Database(t)
		if _, err := db.ExecContext(t.Context(), `DELETE FROM callbacks
			WHERE id IN (SELECT id FROM requests WHERE ref = 'books-7')`); err != nil {
			t.Fatal(err)
		}
		if err := p.compareBooks(t.Context(), &accounts{}); err == nil {
			t.Error("a callback that SQL has lost is not missed")
		}
		b.KeepApart("the test has a callback deleted in SQL")
	})
}
