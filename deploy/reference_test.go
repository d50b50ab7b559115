package deploy

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

const introduction = `# Which alerts are there?

Critical alerts page, and go on for five minutes after their condition has ended. Warnings are for the next
working hour, and infos for the record. [Operations](../guide/operations.md) says how to install the rules.

A test writes this page from deploy/prometheus/alerts.yaml.

| alert | severity | fires when this holds | for | section |
|---|---|---|---|---|
`

// TestReference compares docs/reference/alerts.md with the rules, or writes it with -update.
func TestReference(t *testing.T) {
	transcript.File(t, "../docs/reference/alerts.md", func(t *testing.T, _ string) string {
		var b strings.Builder
		b.WriteString(introduction)
		for _, a := range alerts(t) {
			_, section, _ := strings.Cut(a.Annotations["runbook_url"], "#")
			expr := strings.ReplaceAll(strings.Join(strings.Fields(a.Expr), " "), "|", `\|`)
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s | [%s](../guide/operations.md#%s) |\n", a.Alert,
				a.Labels["severity"], expr, cmp.Or(a.For, "0s"), strings.ReplaceAll(section, "-", " "),
				section)
		}
		b.WriteString("\nRatios that rules and dashboard share:\n\n| name | expression |\n|---|---|\n")
		for _, r := range rules(t) {
			if r.Record != "" {
				fmt.Fprintf(&b, "| %s | `%s` |\n", r.Record,
					strings.ReplaceAll(strings.Join(strings.Fields(r.Expr), " "), "|", `\|`))
			}
		}
		return b.String()
	})
}

// TestRunbookNamesAlerts requires that each alert is named in the section that it links to.
func TestRunbookNamesAlerts(t *testing.T) {
	page, err := os.ReadFile("../docs/guide/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{} // by anchor
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, _, _ := strings.Cut(section, "\n")
		anchor := strings.ReplaceAll(strings.ToLower(heading), " ", "-")
		sections[strings.ReplaceAll(anchor, ",", "")] = section
	}
	for _, a := range alerts(t) {
		_, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if !strings.Contains(sections[anchor], "`"+a.Alert+"`") {
			t.Errorf("the section %q of docs/guide/operations.md does not name %s", anchor, a.Alert)
		}
	}
}
