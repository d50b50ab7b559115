package ui

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// entry is the n-th entry of tests.
func entry(n int, action, object, detail string) store.AuditEntry {
	return store.AuditEntry{
		ID: testID(n), Project: store.DefaultProject, At: testNow - int64(n)*60_000, Actor: "support (key_" + testID(5) + ")", Action: action, Object: object,
		Reason: "the shop has mended its server", Detail: detail, Address: "192.0.2.7",
		Before: `{"name":"Tea","rate":null}`, After: `{"name":"Coffee","rate":"5/s"}`,
	}
}

func auditCases() []pageCase {
	give := func(rows auditRows) func(o *fakes) { return func(o *fakes) { o.auditRows = rows } }
	one := auditRows{page: store.AuditPage{Entries: []store.AuditEntry{entry(1, "endpoint.test", testID(7), `{"callback":"cb_`+testID(9)+`"}`)}}}
	var many auditRows
	for n, action := range []string{
		"callback.retry", "callback.cancel", "poll.resolve", "endpoint.pause", "schedule.run", "redrive.create", "key.create", "lane.pause", "project.pause",
		"secret.read", "preset.put", "index.rebuild", "lane.limits",
	} {
		object := map[string]string{"lane": "https://shop.example:443", "project": "default", "preset": "policy/payment", "index": "generation 3", "secret": "ep_" + testID(7)}
		family, _, _ := strings.Cut(action, ".")
		of, named := object[family]
		if !named {
			of = testID(n + 10)
		}
		many.page.Entries = append(many.page.Entries, entry(100-n, action, of, `{"changed":["url","rate"],"until":1794000600000}`))
	}
	for n := 60; len(many.page.Entries) < pageSize; n-- {
		many.page.Entries = append(many.page.Entries, entry(n, "callback.retry", testID(n), `{"ladder":"restart"}`))
	}
	many.page.Next = testID(1)
	evil := auditRows{page: store.AuditPage{Entries: []store.AuditEntry{{
		ID: testID(1), At: testNow, Actor: hostile, Action: "lane.pause", Object: hostile, Reason: hostile, Detail: strings.Repeat(hostile, 40),
	}, {
		ID: testID(0), At: testNow, Actor: hostile, Action: "endpoint." + hostile, Object: hostile,
		Detail: `{"callback":"cb_<b>"}`, Address: hostile, Before: hostile, After: `{"<b>":"<b>"}`,
	}}}}
	return []pageCase{
		{name: "audit/empty", set: give(auditRows{}), want: wants{{".empty", "Nothing was changed by hand yet"}}, unwanted: []string{"table"}},
		{name: "audit/one", set: give(one), want: wants{
			{"td", "Test sent"}, {"td a", "ep_" + testID(7)}, {"td a", "cb_" + testID(9)},
			{"td q", "mended its server"}, {"td pre", `"callback"`}, {"td .small", "192.0.2.7"},
			{"td pre", `name: "Tea" → "Coffee"`}, {"td pre", `rate: – → "5/s"`}, {"td a", "all of it"},
		}},
		{name: "audit/many", path: "/ui/audit?action=callback.", set: give(many), want: wants{
			{".pager a", "Next page"}, {"td a", "cb_" + testID(10)}, {"td a", "https://shop.example:443"}, {"td", "Signing secret shown"}, {"td", "generation 3"}, {"td .small", "until 2026-11-06 21:30:00"}, {"option", "Signing secrets"},
		}},
		{name: "audit/nomatch", path: "/ui/audit?actor=nobody", set: give(auditRows{}), want: wants{{".empty", "Nothing matches"}, {"form a", "Show all"}}},
		{name: "audit/more", path: "/ui/audit?actor=nobody", set: give(auditRows{page: store.AuditPage{Next: testID(1)}}), want: wants{{".empty", "Nothing found so far"}, {".pager a", "Look on"}, {".empty time", "2025-11-26"}}},
		{name: "audit/wrong", path: "/ui/audit?from=yesterday", set: give(auditRows{err: errBroken}), want: wants{{".banner.bad", "From: yesterday"}}, unwanted: []string{"table"}},
		{name: "audit/hostile", path: "/ui/audit?object=" + queryEscape(hostile) + "&actor=" + queryEscape(hostile) + "&action=" + queryEscape(hostile), set: give(evil)},
		{name: "audit/error", set: give(auditRows{err: errBroken})},
	}
}

func TestAuditAsksForWhatTheAddressSays(t *testing.T) {
	t.Parallel()
	var asked store.AuditFilter
	o := parts()
	o.auditRows = auditRows{page: store.AuditPage{Entries: auditCaseEntries(), Next: testID(1)}, asked: &asked}
	b := signedIn(t, o)
	b.cookies[zoneCookie] = "Asia%2FShanghai"
	res := b.get("/ui/audit?object=ep_" + testID(7) + "&action=endpoint.&actor=Support&from=2026-11-21T10:00&to=2026-11-22").ok()
	from, to := time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC).UnixMilli(), time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC).UnixMilli()
	if asked.Object != testID(7) || asked.Action != "endpoint." || asked.Actor != "Support" || asked.From != from || asked.To != to {
		t.Errorf("asked for %+v", asked)
	}
	res.has("option[selected]", "Endpoints")
	next := attr(find(res.doc, ".pager a")[0], "href")
	b.get(next).ok()
	if asked.After != testID(1) || asked.Object != testID(7) {
		t.Errorf("the next page asks for %+v", asked)
	}
	for path, want := range map[string]string{
		"?object=cb_" + testID(1): testID(1), "?object=key_" + testID(1): testID(1), "?object=policy/payment": "policy/payment",
		"?object=ep_" + testID(7) + "&action=lane.": "ep_" + testID(7), "?object=ep_" + testID(7) + "&action=secret.read": "ep_" + testID(7),
	} {
		b.get("/ui/audit" + path).ok()
		if asked.Object != want {
			t.Errorf("%s asks for %q, want %q", path, asked.Object, want)
		}
	}
	b.get("/ui/audit?cursor=" + queryEscape(hostile)).ok()
	if asked.After == hostile {
		t.Error("a cursor is passed on that is none")
	}
	// All of a lane that is named by an endpoint's id is looked for among lanes.
	b.get("/ui/audit").ok().has("td a[href=/ui/audit?action=lane.&object=ep_"+testID(7)+"]", "all of it")
}

// auditCaseEntries fills a page.
func auditCaseEntries() []store.AuditEntry {
	var all []store.AuditEntry
	for n := pageSize; n > 0; n-- {
		all = append(all, entry(n, "lane.pause", "ep_"+testID(7), ""))
	}
	return all
}

// TestEveryActionHasItsWords: an action that the program writes and no catalogue has is found here.
func TestEveryActionHasItsWords(t *testing.T) {
	t.Parallel()
	all, err := readLanguages(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	written := regexp.MustCompile(`(?:Action: |action[A-Z]\w+ += )"([a-z]+\.[a-z_]+)"`)
	found := 0
	for _, folder := range []string{"../../store/sqlstore", "../../dispatch"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", folder, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range written.FindAllStringSubmatch(string(source), -1) {
				found++
				if !all[0].has("action." + m[1]) {
					t.Errorf("%s writes %s, for which there are no words", name, m[1])
				}
				if familyOf(m[1]).name == "" {
					t.Errorf("%s is of no family", m[1])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d actions were found: the test looks for them in the wrong way", found)
	}
}
