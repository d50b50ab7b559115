package dispatch_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Each code of a block has a course in blocks.txt in which it comes first and states its start.
func TestEveryBlockIsExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/courses/blocks.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range control.BlockCodes {
		_, course, _ := strings.Cut(string(text), "\n== "+code+"\n")
		course, _, _ = strings.Cut(course, "\n== ")
		if _, first, _ := strings.Cut(course, "\n  Code "); !strings.HasPrefix(first, code+", Since +") {
			t.Errorf("no course shows since when %s blocks a callback", code)
		}
	}
}

func (b *fixture) explain(id string) control.Explanation {
	b.Helper()
	synctest.Wait()
	return must(b.engine.Explain(b.Context(), project, id))
}

// first returns the first block of a callback.
func (b *fixture) first(id string) control.Block {
	b.Helper()
	if x := b.explain(id); len(x.Blocking) > 0 {
		return x.Blocking[0]
	}
	return control.Block{}
}

// Many callbacks are explained at once as each of them alone: one in flight, one that waits for its lock, one
// that is not due, one of a paused lane, and one that has ended.
func TestExplainAllIsExplainOfEach(t *testing.T) {
	with(answering("hang", hangs)).run(t, func(b *fixture) {
		locked := func(q accept.Submission) accept.Submission { q.LockKey = "k"; return q }
		paused := to("https://paused.example/")
		must(b.engine.PauseLane(b.Context(), project, "https://paused.example:443", store.Forever, operator))
		later := in(time.Hour)
		later.URL = "https://later.example/"
		ids := []string{
			b.accept(locked(to("https://hang.example/"))).ID, b.accept(paused).ID, b.accept(later).ID,
			b.accept(to("https://fine.example/")).ID,
		}
		time.Sleep(time.Second)
		ids = append(ids, b.accept(locked(to("https://fine.example/"))).ID)
		time.Sleep(time.Second)
		synctest.Wait()
		var all []store.Callback
		codes := make(map[string]bool)
		for _, id := range ids {
			all = append(all, b.get(id))
		}
		got := must(b.engine.ExplainAll(b.Context(), project, all))
		for i, id := range ids {
			if want := b.explain(id); !reflect.DeepEqual(got[i], want) {
				t.Errorf("%s: explained among others: %+v\nalone: %+v", id, got[i], want)
			}
			for _, block := range got[i].Blocking {
				codes[block.Code] = true
			}
		}
		for _, code := range []string{control.BlockAttempting, control.BlockLanePaused, control.BlockNotDue,
			control.BlockLock} {
			if !codes[code] {
				t.Errorf("no callback is blocked by %s: %v", code, codes)
			}
		}
	})
}
