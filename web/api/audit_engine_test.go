package api_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryMutationIsAudited: every route that changes something is in audit.txt, which has the entries that it appends.
// No credential stands in any of them.
func TestEveryMutationIsAudited(t *testing.T) {
	t.Parallel()
	unaudited := []string{
		"POST /v1/callbacks", "POST /v1/callbacks/batch", "POST /v1/events", "POST /v1/polls", // rows of their own
		"POST /v1/reconcile/compare", "POST /v1/index/verify", // look only
		"POST /v1/projects", // in the audit of the new one, which ends the file
	}
	text := play(t, "testdata/audit.txt").out.String()
	for _, r := range routes(t) {
		path := strings.ReplaceAll(regexp.QuoteMeta(r.Path), `\*`, ":")
		path = regexp.MustCompile(`:[a-z_]+`).ReplaceAllString(path, "[^/\n]+")
		walked := regexp.MustCompile(`(?m)^` + r.Method + " " + path + "\n(>.*\n)?< 2.*\n(~ .* by admin key from 192.0.2.1.*\n)")
		if r.Method != "GET" && !slices.Contains(unaudited, name(r)) && !walked.MatchString(text) {
			t.Errorf("%s has no entry in audit.txt", name(r))
		}
	}
	for line := range strings.Lines(text) {
		for _, secret := range []string{
			"S3cr3tOfAHeader", "V4lueOfAQuery", "B0dyOfACallback", "P4sswordOfAURL", "T3mplateSecret",
		} {
			if strings.HasPrefix(line, "~") && strings.Contains(line, secret) {
				t.Errorf("%q stands in the audit: %s", secret, line)
			}
		}
	}
}

// newAuditedFace returns the API over an engine whose database has something by another master key than its first.
func newAuditedFace(t *testing.T) face {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.db")
	t.Run("by another master key", func(t *testing.T) {
		f := newEngineFaceWith(t, newDBAt(t, path), new(receiver), 1)
		f.ask(t, 201, "POST", "/v1/endpoints",
			`{"url":"https://a.example/","headers":{"Authorization":"Bearer S3cr3tOfAHeader"}}`)
	})
	return newEngineFaceWith(t, openDBAt(t, path), new(receiver), 2, 1)
}

// audit writes what a request has added to the audit, but for secrets that the engine makes when they are needed.
func (x *player) audit() {
	x.t.Helper()
	type entry struct {
		Actor, Action, Address, Object, Reason string
		Before, After                          json.RawMessage
	}
	var page struct{ Data []entry }
	if err := json.Unmarshal(x.do("GET", "/v1/audit?limit=500", "").Body.Bytes(), &page); err != nil {
		x.t.Fatal(err)
	}
	added := page.Data[:len(page.Data)-x.audited]
	x.audited = len(page.Data)
	for _, e := range slices.Backward(added) {
		if e.Actor == "dispatcher" {
			continue
		}
		text := "~ " + e.Action + " " + e.Object + " by " + e.Actor + " from " + e.Address
		if e.Reason != "" {
			text += " because " + e.Reason
		}
		x.line(text + ": " + string(e.Before) + " -> " + string(e.After))
	}
}
