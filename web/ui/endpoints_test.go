package ui

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
)

// TestEveryBlockHasTexts: every catalogue has a title and a cure for each block of a callback or a lane.
func TestEveryBlockHasTexts(t *testing.T) {
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
				t.Errorf("%s has no texts for %s", l.code, code)
			}
		}
		for _, code := range []string{
			control.BlockProjectPaused, control.BlockEndpointOff, control.BlockEndpointPaused,
			control.BlockLanePaused,
			control.BlockBreakerOpen, control.BlockRetryAfter, control.BlockRate, control.BlockConcurrency,
			control.BlockSQLDown, control.BlockNoWorker, control.BlockSendingHeld,
			control.BlockIndexUnanswered,
			control.BlockIndexRebuilding,
		} {
			s := b.blockState(&lane, control.Block{Code: code, Since: testNow - 1})
			if s.Text == "lanes.held."+code || s.Kind == "" || s.Cure == "" || s.Since == 0 {
				t.Errorf("%s: %s is %+v", l.code, code, s)
			}
		}
	}
}
