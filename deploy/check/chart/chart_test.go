package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

// scaled are values for several processes.
const scaled = "replicas: 2\ndatabaseUrl: postgres://db.internal/dispatcher\nredisUrl: redis://cache:6379\n"

const namespace = "payments"

func byHelm(name string) release { return release{name: name, namespace: namespace, service: "Helm"} }

// TestGoodValues renders the chart with values of each kind and checks the rules on the result.
func TestGoodValues(t *testing.T) {
	c := loadChart(t)
	all, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, release, values string }{
		{"default", "dispatcher", ""},
		{"another release name", "hooks", ""},
		{"a long release name", strings.Repeat("r", 53), ""},
		{"PostgreSQL and Redis", "dispatcher", scaled},
		{"both URLs from the Secret", "d",
			"replicas: 2\nexistingSecret: {keys: {databaseUrl: database_url, redisUrl: redis_url}}"},
		{"a user without a password", "d", "databaseUrl: postgres://app@db:5432/x?sslmode=verify-full"},
		{"one process with PostgreSQL", "d", "databaseUrl: postgres://db/x"},
		{"one process with SQLite and Redis", "d", "redisUrl: rediss+cluster://a:6379,b:6379"},
		{"no process", "d", "replicas: 0"},
		{"own claim and account", "d",
			"persistence: {existingClaim: mine, backupClaim: backups}\nserviceAccount: {name: mine}"},
		{"storage class", "d", "persistence: {storageClass: fast, size: 500Gi}"},
		{"no network policy", "d", "networkPolicy: {enabled: false}"},
		{"storage by extraEgress only", "d", scaled + "networkPolicy: {storagePorts: []}"},
		{"a user and groups that the cluster assigns", "d",
			"podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}"},
		{"every option", "dispatcher", string(all)},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := template(c, byHelm(test.release), test.values)
			if err != nil {
				t.Fatal(err)
			}
			r.check(t, namespace)
			user := r.deployment.Spec.Template.Spec.SecurityContext.RunAsUser
			if assigned := strings.Contains(test.values, "runAsUser: null"); assigned != (user == nil) {
				t.Errorf("the cluster assigns the user: %t, want %t", user == nil, assigned)
			}
			values, err := chartutil.ReadValues([]byte(test.values))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range lint.AllWithKubeVersion(chartDir, values, namespace,
				&chartutil.KubeVersion{Version: "v1.27.0", Major: "1", Minor: "27"}).Messages {
				if m.Severity > support.InfoSev {
					t.Errorf("helm lint: %s", m)
				}
			}
		})
	}
}

// TestBadValues checks that mistakes are refused, and that the message names the value.
func TestBadValues(t *testing.T) {
	c := loadChart(t)
	for _, test := range []struct{ values, want string }{
		{"replicas: 2", "replicas is 2: more than one process needs PostgreSQL and Redis"},
		{"replicas: 2\nredisUrl: redis://cache", "needs PostgreSQL and Redis"},
		{"replicas: 2\ndatabaseUrl: postgres://db/x", "needs PostgreSQL and Redis"},
		{"replicas: -1", "/replicas"},
		{"replicas: \"2\"", "/replicas"},
		{"replica: 2", "replica"},
		{"databaseUrl: postgres://app:secret@db/x", "/databaseUrl"},
		{"databaseUrl: mysql://db/x", "/databaseUrl"},
		{"redisUrl: redis://:secret@cache", "/redisUrl"},
		{"redisUrl: redis://a\nexistingSecret: {keys: {redisUrl: r}}", "keep one of them"},
		{"databaseUrl: postgres://a/b\nexistingSecret: {keys: {databaseUrl: d}}", "keep one of them"},
		{"existingSecret: {name: \"\"}", "/existingSecret/name"},
		{"existingSecret: {keys: {masterKey: \"\"}}", "/existingSecret/keys/masterKey"},
		{"settings: {worker: 5}", "/settings"},
		{"settings: {listen: \"0.0.0.0:80\"}", "/settings"},
		{"settings: {admin_key: abc}", "/settings"},
		{"settings: {workers: {a: 1}}", "/settings/workers"},
		{"databaseUrl: postgres://db/x\npersistence: {backupClaim: b}", "backupClaim is for SQLite"},
		{"ingress: {enabled: true}", "ingress.enabled needs ingress.hosts"},
		{"ingress: {enabled: \"yes\"}", "/ingress/enabled"},
		{"service: {type: ExternalName}", "/service/type"},
		{"service: {opsPort: 8081}", "/service"},
		{"image: {digest: latest}", "/image/digest"},
		{"drainTimeoutSeconds: 25s", "/drainTimeoutSeconds"},
		{"podDisruptionBudget: {maxUnavailable: 0}", "/podDisruptionBudget"},
		{"podDisruptionBudget: {maxUnavailable: 100%}", "/podDisruptionBudget"},
		{"networkPolicy: {storagePorts: [0]}", "/networkPolicy/storagePorts"},
		{"monitoring: {podMonitor: {interval: often}}", "/monitoring/podMonitor/interval"},
		{"persistence: {size: big}", "/persistence/size"},
		{"extraVolumeMounts: [{name: tmp}]", "/extraVolumeMounts/0"},
	} {
		_, err := template(c, byHelm("d"), test.values)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: error %v, want one with %q", test.values, err, test.want)
		}
	}
}

// ownedSettings are the settings that the chart sets from other values.
var ownedSettings = map[string]bool{
	"listen": true, "ops_listen": true, "data_dir": true, "database_url": true, "redis_url": true,
	"admin_key": true, "master_key": true, "otlp_headers": true,
	"oidc_client_secret": true, "alert_sink": true, "relay": true,
	"shutdown_delay": true, "drain_timeout": true,
}

var settingKey = regexp.MustCompile("`key:\"([a-z_]+)\"(.*)`")

// settingKeys are the keys of all settings of the program.
func settingKeys(t *testing.T) map[string]bool {
	t.Helper()
	source, err := os.ReadFile(root + "cmd/dispatcher/internal/config/settings.go")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, m := range settingKey.FindAllStringSubmatch(string(source), -1) {
		keys[m[1]] = true
		if secret := strings.Contains(m[2], `secret:"all"`); secret && !ownedSettings[m[1]] {
			t.Errorf("the setting %s is a secret: the chart must read it from the Secret", m[1])
		}
	}
	if len(keys) < 20 {
		t.Fatalf("found %d settings", len(keys))
	}
	return keys
}

// A schema is the part of a JSON schema that the tests read.
type schema struct {
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"`
}

// TestSchemaNamesEveryValue compares the schema with values.yaml, and its settings with those of the program.
func TestSchemaNamesEveryValue(t *testing.T) {
	c := loadChart(t)
	var s schema
	if err := yaml.Unmarshal(c.Schema, &s); err != nil {
		t.Fatal(err)
	}
	keys := settingKeys(t)
	for key := range keys {
		if _, ok := s.Properties["settings"].Properties[key]; ok == ownedSettings[key] {
			t.Errorf("values.schema.json: settings.%s exists: %t, want %t", key, ok, !ownedSettings[key])
		}
	}
	for key := range s.Properties["settings"].Properties {
		if !keys[key] {
			t.Errorf("values.schema.json: settings.%s is no setting of the program", key)
		}
	}
	s.Properties["settings"].Properties = nil
	delete(s.Properties, "global") // of parent charts
	sameNames(t, "", &s, c.Values)
}

// sameNames reports names that only the schema or only values.yaml has.
func sameNames(t *testing.T, at string, s *schema, values map[string]any) {
	t.Helper()
	if s.AdditionalProperties == nil {
		t.Errorf("values.schema.json: %q allows every name", at)
	}
	for name := range s.Properties {
		if _, ok := values[name]; !ok {
			t.Errorf("values.yaml has no %s.%s", at, name)
		}
	}
	for name, value := range values {
		p := s.Properties[name]
		switch nested, isMap := value.(map[string]any); {
		case p == nil:
			t.Errorf("values.schema.json has no %s.%s", at, name)
		case isMap && p.Properties != nil:
			sameNames(t, at+"."+name, p, nested)
		}
	}
}

// TestNotes checks the commands that helm prints after an installation.
func TestNotes(t *testing.T) {
	c := loadChart(t)
	for values, want := range map[string][]string{
		"": {"one process with SQLite.", "create secret generic dispatcher-keys", "8080:80 &",
			"No monitoring"},
		scaled: {"2 processes with PostgreSQL and Redis.", "http://127.0.0.1:8080/ui/"},
		"settings: {public_url: https://hooks.example}": {"Admin pages: https://hooks.example/ui/"},
		"existingSecret: {name: k, keys: {databaseUrl: uri, adminKey: a}}": {"secret generic k",
			"--from-literal=uri=postgres://", "{.data.a}"},
	} {
		r, err := template(c, byHelm("d"), values)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(r.notes, text) {
				t.Errorf("the notes for %q have no %q:\n%s", values, text, r.notes)
			}
		}
	}
}
