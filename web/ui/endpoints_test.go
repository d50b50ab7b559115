package ui

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
)

func TestEndpointHistoryIsOfItAndItsLane(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld("endpoints 1", `entries {"ID":"1","Object":"`+testID(1)+`","Actor":"endpoint"} `+
		`{"ID":"2","Object":"ep_`+testID(1)+`","Actor":"lane"}`))
	res := b.get("/ui/endpoints/ep_" + testID(1)).ok()
	if got := strings.Join(strings.Fields(textOf(find(res.doc, ".timeline")[0])), " "); !strings.Contains(got, "lane") || strings.Index(got, "lane") > strings.Index(got, "endpoint") {
		t.Errorf("the history is %q", got)
	}
}

// TestEveryCodeHasWords: whatever keeps a callback or a lane is named, with what can be done about it, in every language.
func TestEveryCodeHasWords(t *testing.T) {
	t.Parallel()
	u, err := newPages()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	lane := newWorld("lanes 1").has.Lanes[0]
	for _, l := range u.languages {
		b := &base{ui: u, lang: l, now: testNow}
		for _, code := range control.BlockCodes {
			if !b.Has("why.title."+code) || !b.Has("why.cure."+code) {
				t.Errorf("%s has no words for %s", l.code, code)
			}
		}
		for _, code := range []string{
			control.BlockProjectPaused, control.BlockEndpointOff, control.BlockEndpointPaused, control.BlockLanePaused,
			control.BlockBreakerOpen, control.BlockRetryAfter, control.BlockRate, control.BlockConcurrency,
			control.BlockSQLDown, control.BlockNoWorker, control.BlockSendingHeld, control.BlockIndexUnanswered,
			control.BlockIndexRebuilding,
		} {
			s := b.laneStanding(&lane, control.Block{Code: code, Since: testNow - 1})
			if s.Text == "lanes.held."+code || s.Kind == "" || s.Cure == "" || s.Since == 0 {
				t.Errorf("%s: %s is %+v", l.code, code, s)
			}
		}
	}
}
