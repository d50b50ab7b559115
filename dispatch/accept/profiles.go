package accept

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Profile is a policy, a success rule, a signer and a time-out in one word. What is zero is not chosen by it.
type Profile struct {
	Name    string             `json:"-"`
	About   string             `json:"-"`
	Policy  store.PolicyChoice `json:"policy,omitzero"`
	Success store.Success      `json:"success,omitzero"`
	Signer  string             `json:"signer,omitempty"`
	// Timeout of one attempt replaces the policy's; zero: it does not.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// platformTimeout is how long the payment platforms of China wait for a merchant's answer.
const platformTimeout = 5 * time.Second

// ProfilePresets returns the profiles that every project knows.
func ProfilePresets() []Profile {
	return []Profile{
		{
			Name: "alipay", About: "Alipay's notifications: the body success, RSA2 over sorted parameters, eight attempts in 24 h 24 m.",
			Policy: store.PolicyChoice{Name: "alipay"}, Success: store.Success{Name: "alipay"},
			Signer:  `{"type":"sorted-kv","alg":"rsa2"}`,
			Timeout: platformTimeout,
		},
		{
			Name: "wechat-v2", About: "WeChat Pay's notifications, API version 2: XML with return_code SUCCESS, MD5 over sorted elements, ten attempts in 3 h 4 m.",
			Policy: store.PolicyChoice{Name: "wechat-v2"}, Success: store.Success{Name: "wechat-v2-xml"},
			Signer:  `{"type":"sorted-kv","alg":"md5"}`,
			Timeout: platformTimeout,
		},
		{
			Name: "wechat-v3", About: "WeChat Pay's notifications, API version 3: 200 or 204, RSA-SHA256 in Wechatpay headers, 16 attempts in 24 h 4 m.",
			Policy: store.PolicyChoice{Name: "wechat-v3"}, Success: store.Success{Name: "wechat-v3"},
			Signer: "wechat-v3-rsa", Timeout: platformTimeout,
		},
		{
			Name: "standard", About: "Standard Webhooks: any 2xx, HMAC-SHA256, ten attempts in 75 h 35 m 5 s.",
			Policy: store.PolicyChoice{Name: "standard-webhooks"}, Success: store.Success{Name: "http-2xx"},
			Signer: "standard-v1", Timeout: policyTimeout,
		},
	}
}

// profile returns the project's own profile of that name, or the preset.
func (v *ProjectView) profile(name string) (Profile, error) {
	if p, ok := v.Profiles[name]; ok {
		return p, nil
	}
	presets := ProfilePresets()
	names := make([]string, len(presets))
	for i := range presets {
		if presets[i].Name == name {
			return presets[i], nil
		}
		names[i] = presets[i].Name
	}
	return Profile{}, fmt.Errorf("%q is not a profile; known are %s, and this project's own", name, strings.Join(names, ", "))
}
