// What a Go operator does with client-go and its defaults, against any server: go run . -kubeconfig FILE
//
// Everything built in goes as protobuf, with Accept naming protobuf alone (so that answers and events must be protobuf)
// and again with the usual protobuf,json. Each check panics where the answer is not a real server's, and so does every
// answer that comes by anything but HTTP/2.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	openapi "github.com/google/gnostic-models/openapiv2"
	appsv1 "k8s.io/api/apps/v1"
	authv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/kube-openapi/pkg/util/proto"
	"sigs.k8s.io/yaml"
)

const protobuf = "application/vnd.kubernetes.protobuf"

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the server and who asks it")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	config.QPS, config.Burst = 1000, 1000
	var answers atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return overHTTP2{next, &answers} })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, accept := range []string{protobuf, protobuf + ",application/json"} {
		config := rest.CopyConfig(config)
		config.ContentType, config.AcceptContentTypes = protobuf, accept
		client := kubernetes.NewForConfigOrDie(config)
		namespace := create(ctx, client)
		workloads(ctx, client, namespace)
		owned(ctx, client, namespace)
		watched(ctx, client, namespace)
		errorsAreTyped(ctx, client, namespace)
		reviews(ctx, client)
		documents(ctx, client)
		election(ctx, client, namespace)
		custom(ctx, config, namespace)
		must(client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
		fmt.Println("ok:", accept)
	}
	if answers.Load() == 0 {
		panic("no answer was seen")
	}
	fmt.Println("answers by HTTP/2:", answers.Load())
}

// overHTTP2 counts answers, and panics where one came by another protocol: client-go would not say.
type overHTTP2 struct {
	next    http.RoundTripper
	answers *atomic.Int64
}

func (o overHTTP2) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if err == nil {
		check("the protocol of "+request.Method+" "+request.URL.Path, response.Proto, "HTTP/2.0")
		o.answers.Add(1)
	}
	return response, err
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: got %v, want %v", what, got, want))
	}
}

func create(ctx context.Context, client kubernetes.Interface) string {
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "go-"}}, metav1.CreateOptions{})
	must(err)
	check("phase", namespace.Status.Phase, corev1.NamespaceActive)
	maps := client.CoreV1().ConfigMaps(namespace.Name)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"l": "1"}}, Data: map[string]string{"k": "v", "empty": ""}, BinaryData: map[string][]byte{"b": {0, 1, 255}}}, metav1.CreateOptions{FieldValidation: "Strict"})
	must(err)
	check("data", made.Data, map[string]string{"k": "v", "empty": ""})
	check("bytes", made.BinaryData, map[string][]byte{"b": {0, 1, 255}})
	made.Data["k"] = "w"
	updated, err := maps.Update(ctx, made, metav1.UpdateOptions{})
	must(err)
	check("manager", updated.ManagedFields[0].Operation, metav1.ManagedFieldsOperationUpdate)
	_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	check("stale", errors.IsConflict(err), true)
	secret, err := client.CoreV1().Secrets(namespace.Name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"p": "word"}}, metav1.CreateOptions{})
	must(err)
	check("secret", string(secret.Data["p"]), "word")
	_, err = client.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(err)
	_, err = client.RbacV1().Roles(namespace.Name).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}, metav1.CreateOptions{})
	must(err)
	return namespace.Name
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "img:1",
			Resources:      corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")}}},
			Ports:          []corev1.ContainerPort{{Name: "web", ContainerPort: 80}},
			EnvFrom:        []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}},
		}}, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
	}
}

func workloads(ctx context.Context, client kubernetes.Interface, namespace string) {
	replicas := int32(0)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template()}}
	made, err := client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	must(err)
	check("replicas", *made.Spec.Replicas, int32(0))
	check("strategy", made.Spec.Strategy.RollingUpdate.MaxSurge.String(), "25%")
	container := made.Spec.Template.Spec.Containers[0]
	check("cpu", container.Resources.Limits.Cpu().String(), "100m")
	check("probe", container.ReadinessProbe.HTTPGet.Port.String(), "web")
	check("env", container.EnvFrom[0].ConfigMapRef.Name, "a")
	check("volume", made.Spec.Template.Spec.Volumes[0].EmptyDir != nil, true)
	scale, err := client.AppsV1().Deployments(namespace).GetScale(ctx, "web", metav1.GetOptions{})
	must(err)
	scale.Spec.Replicas = 3
	scaled, err := client.AppsV1().Deployments(namespace).UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	must(err)
	check("scaled", scaled.Spec.Replicas, int32(3))
	made, err = client.AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
	must(err)
	made.Status.ObservedGeneration, made.Status.Replicas = made.Generation, 3
	made.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Available", Status: "True", LastUpdateTime: metav1.Now()}}
	made, err = client.AppsV1().Deployments(namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	must(err)
	check("status", made.Status.Replicas, int32(3))
	patched, err := client.AppsV1().Deployments(namespace).Patch(ctx, "web", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"img:2"}]}}}}`), metav1.PatchOptions{})
	must(err)
	check("image", patched.Spec.Template.Spec.Containers[0].Image, "img:2")
	job, err := client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, metav1.CreateOptions{})
	must(err)
	check("backoff", *job.Spec.BackoffLimit, int32(6))
	service, err := client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	must(err)
	check("targetPort", service.Spec.Ports[0].TargetPort.IntVal, int32(80))
	pod, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template().Spec}, metav1.CreateOptions{})
	must(err)
	check("pod", pod.Status.Phase, corev1.PodPending)
}

func owned(ctx context.Context, client kubernetes.Interface, namespace string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	owner, err := maps.Get(ctx, "a", metav1.GetOptions{})
	must(err)
	yes := true
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", Finalizers: []string{"example.com/hold"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &yes}}}}, metav1.CreateOptions{})
	must(err)
	background := metav1.DeletePropagationBackground
	must(maps.Delete(ctx, "a", metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &owner.UID}}))
	eventually(ctx, "the child is marked", func() bool {
		child, err := maps.Get(ctx, "child", metav1.GetOptions{})
		must(err)
		return child.DeletionTimestamp != nil
	})
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		child, err := maps.Get(ctx, "child", metav1.GetOptions{})
		must(err)
		child.Finalizers = nil
		_, err = maps.Update(ctx, child, metav1.UpdateOptions{})
		return err
	}))
	_, err = maps.Get(ctx, "child", metav1.GetOptions{})
	check("child gone", errors.IsNotFound(err), true)
}

func eventually(ctx context.Context, what string, holds func() bool) {
	for !holds() {
		select {
		case <-ctx.Done():
			panic("never: " + what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func watched(ctx context.Context, client kubernetes.Interface, namespace string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	lister := factory.Core().V1().ConfigMaps().Lister()
	seen := make(chan string, 100)
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen <- "add " + object.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, object any) { seen <- "update " + object.(*corev1.ConfigMap).Data["n"] },
		DeleteFunc: func(object any) { seen <- "delete" },
	})
	must(err)
	maps := client.CoreV1().ConfigMaps(namespace)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "w"}}, metav1.CreateOptions{})
	must(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	check("first", <-seen, "add w")
	found, err := lister.ConfigMaps(namespace).Get("w")
	must(err)
	found = found.DeepCopy()
	found.Data = map[string]string{"n": "2"}
	_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
	must(err)
	check("then", <-seen, "update 2")
	must(maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!keep"}))
	check("last", <-seen, "delete")
}

func errorsAreTyped(ctx context.Context, client kubernetes.Interface, namespace string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	_, err := maps.Get(ctx, "none", metav1.GetOptions{})
	check("absent", errors.IsNotFound(err), true)
	check("message", err.Error(), `configmaps "none" not found`)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not_a_name"}}, metav1.CreateOptions{})
	check("invalid", errors.IsInvalid(err), true)
	check("field", err.(*errors.StatusError).ErrStatus.Details.Causes[0].Field, "metadata.name")
}

func reviews(ctx context.Context, client kubernetes.Interface) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}, metav1.CreateOptions{})
	must(err)
	check("allowed", review.Status.Allowed, true)
}

func election(ctx context.Context, client kubernetes.Interface, namespace string) {
	ctx, cancel := context.WithCancel(ctx)
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Name: "leader", Namespace: namespace}, Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "me"}}
	leads := false
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads = true; cancel() }, OnStoppedLeading: func() {}},
	})
	check("leads", leads, true)
}

func custom(ctx context.Context, config *rest.Config, namespace string) {
	group := namespace + ".example.com"
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"size": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("3")}},
				"tags": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			}}},
		}}}},
	}}
	client := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	_, err := client.Create(ctx, definition, metav1.CreateOptions{})
	must(err)
	eventually(ctx, "the definition is served", func() bool {
		found, err := client.Get(ctx, definition.Name, metav1.GetOptions{})
		must(err)
		for _, condition := range found.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == "True" {
				return true
			}
		}
		return false
	})
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	plain := rest.CopyConfig(config)
	plain.ContentType, plain.AcceptContentTypes = "", ""
	widgets := dynamic.NewForConfigOrDie(plain).Resource(resource).Namespace(namespace)
	var made *unstructured.Unstructured
	eventually(ctx, "a widget is made", func() bool {
		made, err = widgets.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{}}}, metav1.CreateOptions{})
		return err == nil
	})
	size, _, _ := unstructured.NestedInt64(made.Object, "spec", "size")
	check("default", size, int64(3))
	metadata := metadata.NewForConfigOrDie(plain).Resource(resource).Namespace(namespace)
	part, err := metadata.Get(ctx, "w", metav1.GetOptions{})
	must(err)
	check("metadata", part.UID, made.GetUID())
	parts, err := metadata.List(ctx, metav1.ListOptions{})
	must(err)
	check("all metadata", len(parts.Items), 1)
	must(client.Delete(ctx, definition.Name, metav1.DeleteOptions{}))
}

// documents reads the document of OpenAPI v2, which comes as protobuf: it says what the JSON says, and kubectl's models are made of it.
func documents(ctx context.Context, client kubernetes.Interface) {
	document, err := client.Discovery().OpenAPISchema()
	must(err)
	text, err := client.Discovery().RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").Do(ctx).Raw()
	must(err)
	said, err := openapi.ParseDocument(text)
	must(err)
	if !reflect.DeepEqual(plain(document), plain(said)) {
		panic("the document of OpenAPI v2 says something else as protobuf")
	}
	models, err := proto.NewOpenAPIData(document)
	must(err)
	deployment, ok := models.LookupModel("io.k8s.api.apps.v1.Deployment").(*proto.Kind)
	check("the model of a Deployment", ok, true)
	check("what a Deployment is made of", deployment.Keys(), []string{"apiVersion", "kind", "metadata", "spec", "status"})
}

// plain gives what a document says, however it is written.
func plain(document *openapi.Document) any {
	bytes, err := document.YAMLValue("")
	must(err)
	var value any
	must(yaml.Unmarshal(bytes, &value))
	return value
}
