package cluster

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// tokenLifetime of KubeconfigFor, in seconds.
const tokenLifetime = 24 * 3600

// Config is an administrator's client configuration, a copy per call, without a
// client-side rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig is the path of an administrator's kubeconfig file. Its credentials are inline.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig", "admin") }

// KubeconfigFor writes a kubeconfig that holds a token of a service account, by
// TokenRequest, and returns its path: what runs with it has exactly the account's rights.
// The account must exist. The context's namespace is the account's.
func (c *Cluster) KubeconfigFor(ctx context.Context, namespace, serviceAccount string) (string, error) {
	return c.KubeconfigVia(ctx, "sa-"+namespace+"-"+serviceAccount, namespace, serviceAccount, c.URL())
}

// KubeconfigVia is KubeconfigFor by way of another URL, as a Relay's, in a file of its own whose name is given by name.
func (c *Cluster) KubeconfigVia(ctx context.Context, name, namespace, serviceAccount, url string) (string, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return "", err
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenLifetime)},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s/%s: %w", namespace, serviceAccount, err)
	}
	return c.writeKubeconfig(name, namespace, url, clientcmdapi.AuthInfo{Token: token.Status.Token})
}

// KubeconfigForUser writes a kubeconfig with a client certificate for a user and its groups,
// and returns its path; the file's name is given by name. A kubelet is user
// system:node:<node> in group system:nodes.
func (c *Cluster) KubeconfigForUser(name, user string, groups ...string) (string, error) {
	added, err := c.plane.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(name, metav1.NamespaceDefault, c.URL(), clientcmdapi.AuthInfo{ClientCertificateData: added.Config().CertData, ClientKeyData: added.Config().KeyData})
}

func (c *Cluster) writeKubeconfig(name, namespace, url string, user clientcmdapi.AuthInfo) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["kube-node-ready-test"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: c.CA()}
	config.AuthInfos[name] = &user
	config.Contexts["kube-node-ready-test"] = &clientcmdapi.Context{Cluster: "kube-node-ready-test", AuthInfo: name, Namespace: namespace}
	config.CurrentContext = "kube-node-ready-test"
	path := c.path("kubeconfig", name)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write kubeconfig %s: %w", name, err)
	}
	return path, nil
}

// CA certifies the API server, in PEM.
func (c *Cluster) CA() []byte { return c.plane.APIServer.CA }

// KubeletClientCAFile is the path of the certificate authority of the API server as a client of kubelets.
func (c *Cluster) KubeletClientCAFile() string { return c.path("pki", "kubelet-client.crt") }
