package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

const sinksFile = `alert_sink:
  - type: dingtalk
    url: https://robot.example/robot/send?access_token=path-secret-1
    secret: signing-secret-2
    lang: zh-CN
    mentions: ["13800000000"]
  - type: email
    server: smtps://mail.example:465
    username: alerts@shop.example
    password: mail-password-3
    from: alerts@shop.example
    to:
      - night@shop.example
`

// TestSinksOfAFile checks that the settings file may have the sinks as YAML, and that no output has their
// credentials.
func TestSinksOfAFile(t *testing.T) {
	t.Parallel()
	l, err := loadWith(t, nil, "--config", cmdtest.WriteFile(t, "d.yaml", sinksFile))
	if err != nil {
		t.Fatal(err)
	}
	sinks, wrong := l.Sinks()
	if len(wrong) > 0 || len(sinks) != 2 || sinks[0].Mentions[0] != "13800000000" ||
		sinks[1].To[0] != "night@shop.example" {
		t.Fatalf("%+v, %v", sinks, wrong)
	}
	var shown string
	for _, row := range l.rows() {
		if row.Setting == "alert_sink" {
			shown = row.Value
		}
	}
	cleaned := l.Clean(errors.New("a " + sinks[0].URL + " b " + sinks[0].Secret + sinks[1].Password)).Error()
	for _, secret := range []string{"path-secret-1", "signing-secret-2", "mail-password-3"} {
		if strings.Contains(shown+cleaned, secret) {
			t.Errorf("%s is shown: %s %s", secret, shown, cleaned)
		}
	}
	for _, visible := range []string{"https://robot.example/***", "night@shop.example"} {
		if !strings.Contains(shown, visible) {
			t.Errorf("shown is %s", shown)
		}
	}
}

func TestWrongSinks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                 "alert_sink: is not JSON of the expected form",
		`[{"type":"irc"}]`:   "alert_sink: [0].type must be one of",
		`[{"type":"slack"}]`: "alert_sink: [0].url is required",
		`[{"type":"slack","url":"http://10.0.0.1/secret-path"}]`: "[0].url: host is not a public address",
	} {
		_, err := loadWith(t, []string{"DISPATCHER_ALERT_SINK=" + text})
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret-path") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
