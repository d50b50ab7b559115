package chart

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
)

// TestTheProgramAcceptsTheEnvironment gives the program the variables of the pod, with files for the keys.
// The program refuses variables that are no settings and values that it does not understand.
func TestTheProgramAcceptsTheEnvironment(t *testing.T) {
	all, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	binary, c := program.Build(t), loadChart(t)
	for name, values := range map[string]string{
		"default": "", "scaled": scaled, "every option": string(all),
	} {
		r, err := template(c, byHelm("dispatcher"), values)
		if err != nil {
			t.Fatal(err)
		}
		keys := t.TempDir()
		for file, text := range map[string]string{
			"admin_key":          strings.Repeat("a", 48),
			"master_key":         base64.StdEncoding.EncodeToString(make([]byte, 32)),
			"database_url":       "postgres://user:password@db.internal/dispatcher",
			"redis_url":          "redis://:password@cache:6379",
			"otlp_headers":       "Authorization=Bearer%20abc",
			"oidc_client_secret": "of-the-provider",
			"alert_sink":         `[{"type":"slack","url":"https://hooks.slack.example/services/T/B/X"}]`,
			"relay":              `[{"name":"pay","dsn":"mysql://relay:password@db:3306/pay"}]`,
		} {
			if err := os.WriteFile(filepath.Join(keys, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		config := exec.Command(binary, "config")
		config.Env = []string{"PATH=/usr/bin:/bin"}
		for name, value := range environment(r.deployment.Spec.Template.Spec.Containers[0]) {
			if strings.HasPrefix(name, "DISPATCHER_") {
				config.Env = append(config.Env, name+"="+strings.Replace(value, "/keys/", keys+"/", 1))
			}
		}
		out, err := config.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if name == "every option" {
			for _, line := range []string{
				`requests_per_second +1000000 `, `egress_allow +10\.20\.0\.0/16,erp\.internal `,
				`drain_timeout +2m `, `shutdown_delay +15s `, `horizon +1h `,
				`trace_sample_ratio +0\.05 `, `hold +false `,
				`oidc_client_secret +\*\*\* `, `alert_sink +\S*slack`,
				`relay +\S*relay:\*\*\*@db`,
			} {
				if !regexp.MustCompile(`(?m)^\s*` + line).Match(out) {
					t.Errorf("%s: no line %q:\n%s", name, line, out)
				}
			}
		}
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestExamplesOfTheGuide renders the chart with the values of docs/guide/kubernetes.md, and decodes the
// objects of the page strictly.
func TestExamplesOfTheGuide(t *testing.T) {
	page, err := os.ReadFile(root + "docs/guide/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	c := loadChart(t)
	d, err := decoder()
	if err != nil {
		t.Fatal(err)
	}
	values, objects := 0, 0
	for _, b := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(b[1], "apiVersion:") {
			for text := range strings.SplitSeq(b[1], "\n---\n") {
				objects++
				if _, _, err := d.Decode([]byte(text), nil, nil); err != nil {
					t.Errorf("%v\n%s", err, text)
				}
			}
			continue
		}
		values++
		r, err := template(c, byHelm("dispatcher"), b[1])
		if err != nil {
			t.Errorf("%v\n%s", err, b[1])
			continue
		}
		r.check(t, namespace)
	}
	if values < 3 || objects < 4 {
		t.Errorf("found %d examples of values and %d objects", values, objects)
	}
}
