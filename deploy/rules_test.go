// Package deploy holds no code: its tests check the files in this directory.
package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// runbook is the page with a section for each alert. A test in the root of the module follows its addresses
// to their headings.
const runbook = "https://github.com/seed-ff5a32d8/dispatcher/blob/main/docs/guide/operations.md#"

// ruleFiles are the rules that ship.
var ruleFiles = []string{"prometheus/alerts.yaml", "prometheus/recording.yaml"}

// A rule is an alert or a recording rule.
type rule struct {
	Alert, Record, Expr string
	For                 string
	KeepFiringFor       string `yaml:"keep_firing_for"`
	Labels, Annotations map[string]string
}

// rules reads the rules of the files, in order.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	for _, name := range ruleFiles {
		var file struct {
			Groups []struct {
				Name  string
				Rules []rule
			}
		}
		readYAML(t, name, &file)
		for _, group := range file.Groups {
			all = append(all, group.Rules...)
		}
	}
	return all
}

// alerts reads the alerts, in order.
func alerts(t *testing.T) []rule {
	t.Helper()
	all := slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" })
	if len(all) < 30 {
		t.Fatalf("found %d alerts", len(all))
	}
	return all
}

// readYAML decodes a file. It refuses unknown fields.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// sections matches the anchor that a runbook address ends with.
var sections = regexp.MustCompile(`^[a-z-]+$`)

func TestAlertsSayWhatToDo(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		if !strings.HasPrefix(a.Alert, "Dispatcher") || seen[a.Alert] {
			t.Errorf("%s: a name begins with Dispatcher and occurs once", a.Alert)
		}
		seen[a.Alert] = true
		severity := a.Labels["severity"]
		if !slices.Contains([]string{"critical", "warning", "info"}, severity) || len(a.Labels) != 1 {
			t.Errorf("%s: labels %v; want severity critical, warning or info alone", a.Alert, a.Labels)
		}
		if page := severity == "critical"; page != (a.KeepFiringFor == "5m") {
			t.Errorf("%s: keep_firing_for is %q; want 5m for critical alerts, and nothing for others",
				a.Alert, a.KeepFiringFor)
		}
		for _, name := range []string{"summary", "description"} {
			if text := a.Annotations[name]; !strings.HasSuffix(text, ".") || strings.Contains(text, "\n") {
				t.Errorf("%s: the %s is %q; want one paragraph of sentences", a.Alert, name, text)
			}
		}
		anchor, ours := strings.CutPrefix(a.Annotations["runbook_url"], runbook)
		if !ours || !sections.MatchString(anchor) {
			t.Errorf("%s: the runbook_url is %q; want a section of %s", a.Alert, a.Annotations["runbook_url"],
				runbook)
		}
		if len(a.Annotations) != 4 || a.Annotations["dashboard"] == "" {
			t.Errorf("%s: want the annotations summary, description, runbook_url and dashboard", a.Alert)
		}
	}
}

// alertTested matches the alert that an expression of a test asks for.
var alertTested = regexp.MustCompile(`ALERTS\{alertname="(\w+)",alertstate="firing"\}`)

// TestEveryAlertHasTests requires of each alert a test in which it fires, and one in which it does not.
func TestEveryAlertHasTests(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{"DispatcherWatchdog": true} // which always fires
	for _, name := range ruleTests(t) {
		var file struct {
			RuleFiles          []string `yaml:"rule_files"`
			EvaluationInterval string   `yaml:"evaluation_interval"`
			Tests              []struct {
				Name, Interval string
				InputSeries    []struct{ Series, Values string } `yaml:"input_series"`
				Expressions    []struct {
					Expr    string
					At      string                           `yaml:"eval_time"`
					Samples []struct{ Labels, Value string } `yaml:"exp_samples"`
				} `yaml:"promql_expr_test"`
				Alerts []struct {
					Name string `yaml:"alertname"`
					At   string `yaml:"eval_time"`
					Want []struct {
						Labels      map[string]string `yaml:"exp_labels"`
						Annotations map[string]string `yaml:"exp_annotations"`
					} `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		readYAML(t, name, &file)
		for _, test := range file.Tests {
			for _, a := range test.Alerts {
				fires[a.Name] = fires[a.Name] || len(a.Want) > 0
			}
			for _, e := range test.Expressions {
				found := alertTested.FindStringSubmatch(e.Expr)
				switch {
				case found == nil:
				case len(e.Samples) > 0:
					fires[found[1]] = true
				default:
					silent[found[1]] = true
				}
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: fires in a test: %t, is silent in a test: %t; want both", a.Alert, fires[a.Alert],
				silent[a.Alert])
		}
		delete(fires, a.Alert)
	}
	for name := range fires {
		t.Errorf("the tests have an alert %s, which does not exist", name)
	}
}

// ruleTests returns the files with tests of the rules.
func ruleTests(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("prometheus/tests/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("found %d files with tests of rules: %v", len(names), err)
	}
	return names
}

// TestPromtool lets Prometheus's own tool check the rules and the example configuration, and run the tests of
// the rules.
func TestPromtool(t *testing.T) {
	if testing.Short() {
		t.Skip("promtool is not needed with -short")
	}
	run(t, "promtool", append([]string{"check", "rules"}, ruleFiles...)...)
	run(t, "promtool", "check", "config", "prometheus/prometheus.yml")
	run(t, "promtool", append([]string{"test", "rules"}, ruleTests(t)...)...)
}

// expanded matches an alert in the output of promtool, with its annotations.
var expanded = regexp.MustCompile(`Labels:\{alertname="(\w+)".*\n\s+Annotations:\{(.*)\}`)

// TestAnnotationsExpand lets promtool print each alert where it fires in the tests of the rules, and looks
// for templates that could not be expanded. promtool prints what a test does not expect.
func TestAnnotationsExpand(t *testing.T) {
	if testing.Short() {
		t.Skip("promtool is not needed with -short")
	}
	seen := map[string]bool{"DispatcherWatchdog": true} // a test of the rules compares its annotations
	for _, name := range ruleTests(t) {
		output, err := exec.Command("promtool", "test", "rules", expectingNothing(t, name)).CombinedOutput()
		found := expanded.FindAllStringSubmatch(string(output), -1)
		if err == nil || len(found) == 0 {
			t.Fatalf("%s: promtool prints no alert: %v\n%s", name, err, output)
		}
		for _, f := range found {
			seen[f[1]] = true
			if strings.ContainsAny(f[2], "<>") || strings.Contains(f[2], "%!") {
				t.Errorf("%s: a template was not expanded: %s", f[1], f[2])
			}
		}
	}
	for _, a := range alerts(t) {
		if !seen[a.Alert] {
			t.Errorf("promtool does not print %s", a.Alert)
		}
	}
}

// expectingNothing writes the tests of a file, changed to expect no alert where one fires.
func expectingNothing(t *testing.T, name string) string {
	t.Helper()
	var file map[string]any
	readYAML(t, name, &file)
	var rules []string
	for _, f := range ruleFiles {
		full, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, full)
	}
	file["rule_files"] = rules
	for _, test := range file["tests"].([]any) {
		test := test.(map[string]any)
		var changed []any
		for _, e := range test["promql_expr_test"].([]any) {
			e := e.(map[string]any)
			alert := alertTested.FindStringSubmatch(e["expr"].(string))
			if alert != nil && e["exp_samples"] != nil {
				changed = append(changed,
					map[string]any{"alertname": alert[1], "eval_time": e["eval_time"]})
			}
		}
		delete(test, "promql_expr_test")
		test["alert_rule_test"] = changed
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return changed
}

// packages are the Debian packages of the programs that these tests run.
var packages = map[string]string{"promtool": "prometheus", "amtool": "prometheus-alertmanager"}

// run runs a program, which must succeed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("this test needs %s (Debian: apt-get install %s): %v", name, packages[name], err)
	}
	var output bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output.String())
	}
}
