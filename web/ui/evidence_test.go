package ui

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The texts of the API are those of the pages. Times are in UTC, and data is as it came.
func TestReportTexts(t *testing.T) {
	t.Parallel()
	texts, err := ReportTexts()
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) != 2 || texts["en"] == nil || texts["zh-CN"] == nil {
		t.Fatalf("there are %d languages", len(texts))
	}
	text := string(texts["zh-CN"](&control.Report{
		At: 1_700_000_000_000, FirstDue: 1_700_000_000_000, Total: 1,
		Callback: store.Callback{Ref: "<b>&amp;1", State: store.Scheduled, URL: "https://a.example/?t=hidden"},
		Attempts: []store.Attempt{{Number: 1, Status: 500, Class: store.ClassHTTP5xx,
			Outcome: store.AttemptFailed, ResponseBody: "<i>boom</i>"}},
	}))
	for _, want := range []string{
		"报告生成时间：2023-11-14 22:13:20.000 +00:00\n", "业务单号：<b>&amp;1\n", "应答状态码：500\n",
		"<i>boom</i>\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("the report shows the query:\n%s", text)
	}
}

// A poll's answer that is not final is no failure: for a notification the same error type is one. A poll
// whose final answer is a failure has not succeeded.
func TestReportsOfPolls(t *testing.T) {
	t.Parallel()
	texts, err := ReportTexts()
	if err != nil {
		t.Fatal(err)
	}
	mismatch := store.Attempt{Number: 1, Status: 200, Class: store.ClassRuleMismatch,
		Outcome: store.AttemptFailed}
	final := store.Attempt{Number: 1, Status: 200, Class: store.ClassOK, Outcome: store.AttemptSucceeded}
	for want, r := range map[string]control.Report{
		"Result: Pending\n": {Callback: store.Callback{Kind: store.Poll, State: store.Scheduled},
			Attempts: []store.Attempt{mismatch}},
		"Result: Failed · Unexpected response (rule_mismatch)\n": {
			Callback: store.Callback{Kind: store.Notify, State: store.Scheduled},
			Attempts: []store.Attempt{mismatch}},
		"State: Final: failure\n": {Callback: store.Callback{Kind: store.Poll, State: store.Succeeded,
			Reason: store.PollFailed, AttemptSeq: 1}, Attempts: []store.Attempt{final}},
		"Result: Final: failure\n": {Callback: store.Callback{Kind: store.Poll, State: store.Succeeded,
			Reason: store.PollFailed, AttemptSeq: 1}, Attempts: []store.Attempt{final}},
	} {
		text := string(texts["en"](&r))
		if !strings.Contains(text, want) || strings.Contains(text, "ucceeded") {
			t.Errorf("no %q in the report:\n%s", want, text)
		}
	}
}
